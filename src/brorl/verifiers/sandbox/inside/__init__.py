"""What runs inside the sandbox: standard library only, since this folder is all of brorl that is mounted there."""
