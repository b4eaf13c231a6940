"""How commands print: lines, tables, SARIF, annotations of GitHub; and the tables of one command each."""
