"""The `wide-deep` model: a linear model beside a tower."""
