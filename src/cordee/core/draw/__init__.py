"""Charts and heat maps as SVG, and text made safe for them."""
