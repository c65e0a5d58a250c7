"""Apptainer (and SingularityCE, which takes the same words): `engine` makes command lines, `main` is what they run.

Its own words for an environment are pure functions in `words`. It was not run for real where Cordée is developed: there is
no package for Debian; tests compare the words and use a program that answers as Apptainer does.
"""
