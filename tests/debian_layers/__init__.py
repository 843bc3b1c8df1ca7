"""Tests of Debian packages as layers."""
