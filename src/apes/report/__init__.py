"""What a run is and came to, for people: facts from its folder alone, a page to read and print, event files."""
