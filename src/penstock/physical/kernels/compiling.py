"""How loops of operators and synopses are compiled: as all are."""

from penstock.shedding.compiled import compiled as compiled
