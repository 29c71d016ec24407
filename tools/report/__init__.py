"""`report`: an HTML page about a database. `page` puts it together, the other modules write its sections."""
