"""The `dcn-v2` model: crosses of features, layer by layer, with a tower after or beside them."""
