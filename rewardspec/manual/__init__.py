"""The manual: a page for each name of the language and of what ships, made from its declaration.

    for page in all_pages():
        write(page.path, page.markdown)

`rewardspec explain NAME` prints one page; a documentation site writes all of them to files.
"""

from rewardspec.manual.manual import KINDS, all_pages, names, pages_named
from rewardspec.manual.page import Kind, Page

__all__ = ["KINDS", "Kind", "Page", "all_pages", "names", "pages_named"]
