"""A user's ASes: form, pages, REST, attachments."""
