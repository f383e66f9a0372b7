"""What several sources of a document become one vector by (Liu 2020, table 2): a module each."""
