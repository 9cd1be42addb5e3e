"""The policy's forward pass, loss and update on tries."""
