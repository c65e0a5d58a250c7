"""Why jobs wait and end: what a back end looks at, how it words it, and what is said where it knows nothing."""
