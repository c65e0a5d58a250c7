"""Recordings and traces made from numbers instead of measurements."""
