"""What every room stands on: errors, findings, units, words, statistics, documents, drawing."""
