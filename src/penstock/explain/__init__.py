"""Plans for people and programs: a neutral render tree, shown as text, JSON, Mermaid and a drawing.

Contract: the owner of a plan (the algebra, the physical planner) turns it into `RenderNode`s, which are independent of
plans; the functions here show any such tree. Nodes with the same `id` are one node.
"""

from penstock.explain.drawing import to_svg
from penstock.explain.formats import WIDTH, to_json, to_mermaid, to_text
from penstock.explain.nodes import RenderNode

__all__ = ["WIDTH", "RenderNode", "to_json", "to_mermaid", "to_svg", "to_text"]
