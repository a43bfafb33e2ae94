"""Everything a user looks at: progress, console tables, plots, status pages and reports."""
