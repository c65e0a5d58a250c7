"""Real runs under test: started, watched and ended whatever happens."""
