"""Bases of pages, forms, tables, plots, admin classes and REST views; nothing of the domain."""
