"""Telemetry on the document side: sealed series, the reader, views."""
