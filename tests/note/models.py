from django.db import models


class Note(models.Model):
    link = models.OneToOneField("testbed.Link", on_delete=models.CASCADE, related_name="+")
    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text
