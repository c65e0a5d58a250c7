"""What can be packed: folders, archives, tables, records, arrays, objects of a store."""
