"""`python -m penstock` is the command `penstock`."""

from penstock.command import main

if __name__ == "__main__":
    main()
