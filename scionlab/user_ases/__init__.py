"""A user's ASes: form, pages, REST, attachments. The last app of the core.

Is      the form of the thesis: an AS, its attachments, and the upper limit of each
Offers  `user_as.user_as_create`, `attachments.AttachmentSpec`; REST v1 of ASes, Links and attachment points
        For apps above: `pages.panels.AS_LINES` and `LINK_PARTS`, `rest.documents.LINK_FIELDS`
Needs   limits and what is below it
"""
