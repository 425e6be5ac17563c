"""Windows, placement of points, and gridding on one device."""
