"""Reading and comparing mathematical answers: extraction, lexer, parser, evaluation, comparison; no text is run."""
