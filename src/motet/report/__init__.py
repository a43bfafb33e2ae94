"""What a person looks at: progress, curves, tables."""
