"""Accounts, API tokens, mails, and the audit of who changed what."""
