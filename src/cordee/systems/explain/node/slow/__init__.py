"""Who is slow: from what ranks do with their time, beside the lead of a run."""
