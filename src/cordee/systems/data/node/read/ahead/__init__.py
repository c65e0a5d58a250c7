"""Reading ahead: what is read next is asked of storage before anybody waits for it."""
