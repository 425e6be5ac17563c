"""`python -m benchmarks tables`: parts (commands) -> rows in results/ -> tables and series -> marked texts of pages."""
