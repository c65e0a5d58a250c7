"""How answers look: forms, tables, shapes, errors; kept for all who ask the same."""
