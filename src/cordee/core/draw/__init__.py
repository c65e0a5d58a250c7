"""Charts as SVG, pictures as PNG, pages from templates, and text made safe for them."""
