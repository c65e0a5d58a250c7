"""What a training script calls while it runs, and the channel by which its agent hears of it."""
