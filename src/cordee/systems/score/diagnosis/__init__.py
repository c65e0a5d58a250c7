"""Why devices were not busier: rules over windows, the evidence, and what is worth telling whatever the class."""
