"""The parts of a recipe, each a class of its own: what it resolves to, and the step that puts it into the image."""
