"""Plots, tables and the report."""
