"""Accounts, API tokens, mails, and the audit log."""
