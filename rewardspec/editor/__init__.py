"""What an editor asks about the text of a spec, at a place of it. `server.py` answers for the editor.

A place is an offset in characters of `Document.text`; `positions.py` has those of the protocol. All files but
`server.py` and `messages.py` are functions of a document, and run without an editor. Nothing here imports or runs what
a spec names.
"""
