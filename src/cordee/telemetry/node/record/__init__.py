"""`cordee record`: samples any command, wherever it runs, and stays out of its way."""
