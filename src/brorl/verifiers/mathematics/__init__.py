"""Reading and comparing mathematical answers: extraction, lexer, parser, evaluation, comparison. Nothing is executed."""
