"""Bases of pages, forms, tables, plots, admin classes and REST views; nothing of the domain.

Is      what all pages, admin pages and REST views do alike: access, stale pages, paging, idempotency, ETags, styles
Offers  `pages.own_pages.own_page`, `pages.stale_pages.refuse_stale`, `pages.plots`, `admin.base`, `rest.base.ApiView`
Needs   platform
"""
