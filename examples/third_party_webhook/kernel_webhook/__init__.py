"""Messages posted over HTTP, as an engine of the messaging kernel."""
