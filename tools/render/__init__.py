"""Output of commands: text, JSON, HTML and pictures. Knows nothing about databases."""
