"""The seam of back ends on the node side."""
