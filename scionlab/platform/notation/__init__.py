"""Notation of ISD-ASes, bandwidths and times. Pure."""
