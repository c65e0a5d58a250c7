"""How files of each kind are looked at; a kind is told by content, never by a name."""
