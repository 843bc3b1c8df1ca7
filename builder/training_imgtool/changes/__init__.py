"""What an image was made from, beside what the spec says now: `imgtool show --why`, and what a push changed."""
